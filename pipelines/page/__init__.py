"""What every tree's part of the page of a release is made of."""

"""What ``dptrees plan`` says of the budget of a whole release."""

"""What every part of a configuration file is: keys, rules, and sentences about what breaks them."""

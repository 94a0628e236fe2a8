"""What ``dptrees plan`` says of the trees and of the budget of a whole release."""

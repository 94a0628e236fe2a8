"""What people see of plans and answers: figures, charts, page parts, descriptions."""

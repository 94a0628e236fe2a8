"""What a release takes on many workers: predicted from the plan and a guess of the rows."""

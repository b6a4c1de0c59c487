"""Rejected rows: what they hold, and how they go back into the job that refused them."""

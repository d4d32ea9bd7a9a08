"""What the window does with files dropped on it."""

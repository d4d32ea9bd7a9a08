"""Conversations: what they hold, what happens to them, how they are shown."""

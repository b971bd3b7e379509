"""runlane: a durable agent runtime."""

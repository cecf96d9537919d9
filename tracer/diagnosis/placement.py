"""Rules on where parameters lie: devices nobody asked for, offload."""

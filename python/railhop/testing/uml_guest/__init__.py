"""What runs inside a guest of railhop.testing.uml: its init, its agent, and railhop-link."""

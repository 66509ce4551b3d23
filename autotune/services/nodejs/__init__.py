"""Node.js, which runs JavaScript applications."""

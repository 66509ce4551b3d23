"""Node.js, which runs applications in JavaScript."""

"""Environments that evaluate configurations: a stack of servers, a simulated stack, or the user's
command.
"""

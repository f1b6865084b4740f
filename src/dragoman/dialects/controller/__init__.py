"""Worker-Controller: workers that report by pulses and are called back, over Unix sockets.

docs/dialects/controller.md is its page.
"""

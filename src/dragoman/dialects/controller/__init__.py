"""Worker-Controller: a dialect over Unix sockets whose workers send pulses and are called back.

Described in docs/dialects/controller.md.
"""

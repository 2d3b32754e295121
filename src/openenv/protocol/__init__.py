"""What goes over the wire, as values and rules: no await, no clock, no socket.

`messages` names every frame, `codecs` turns frames into bytes and back, `connection` knows which
frame may follow which.
"""

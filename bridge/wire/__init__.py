"""Pure codecs between bytes and messages, twin functions for the two directions. No I/O, no clock, no logging."""

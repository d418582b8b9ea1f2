"""The abstract base class of each plugin kind: a hook only registers, behaviour lives in these objects."""

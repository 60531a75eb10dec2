"""`mirror report`: one page about what was mirrored.

`figures.py` counts with Spark; the rest is pure: `scale.py` axes and units, `markup.py` escaping, `plots.py` SVG,
`page.py` the page.
"""

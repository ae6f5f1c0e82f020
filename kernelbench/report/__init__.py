"""Tables and plots of what others computed: READMEs, gate reports, ladder, roofline.

It imports ``lineages`` and what is below and measures nothing.
"""

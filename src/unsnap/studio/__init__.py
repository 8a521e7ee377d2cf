"""The studio: a page in the browser for all that the command line does with one capture (`unsnap studio`).

The page (Gradio) only shows and asks. Every computation runs in a process of its own (`jobs`, `work`), so that it can
be stopped at any moment and a bad file can harm nothing but that process.
"""

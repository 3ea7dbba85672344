FROM studies

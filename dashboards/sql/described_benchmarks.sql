FROM plugins WHERE study = $study AND part = 'benchmark'

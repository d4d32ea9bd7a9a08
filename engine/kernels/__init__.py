"""Array kernels: functions of arrays alone, each with its plain form."""

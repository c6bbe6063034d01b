// see device.h

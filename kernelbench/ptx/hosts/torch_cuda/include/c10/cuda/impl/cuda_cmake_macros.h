// What torch's build writes for a GPU and a wheel for CPUs lacks; torch's own headers ask for it.
#pragma once

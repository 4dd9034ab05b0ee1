// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/element.hpp>

// EACH_PRECISION(KERNEL): KERNEL(Master, Gather, Gradient) for each of the 64 combinations of element types.
// EACH_DEFAULT_PRECISION(KERNEL): the same for those of DefaultPrecision, and of it without masters.

#define EACH_GRADIENT(KERNEL, Master, Gather) \
    KERNEL(Master, Gather, double)            \
    KERNEL(Master, Gather, float)             \
    KERNEL(Master, Gather, shardkit::bf16)    \
    KERNEL(Master, Gather, shardkit::fp16)
#define EACH_GATHER(KERNEL, Master)               \
    EACH_GRADIENT(KERNEL, Master, double)         \
    EACH_GRADIENT(KERNEL, Master, float)          \
    EACH_GRADIENT(KERNEL, Master, shardkit::bf16) \
    EACH_GRADIENT(KERNEL, Master, shardkit::fp16)
#define EACH_PRECISION(KERNEL)          \
    EACH_GATHER(KERNEL, double)         \
    EACH_GATHER(KERNEL, float)          \
    EACH_GATHER(KERNEL, shardkit::bf16) \
    EACH_GATHER(KERNEL, shardkit::fp16)
#define EACH_DEFAULT_PRECISION(KERNEL)            \
    KERNEL(double, double, double)                \
    KERNEL(float, float, float)                   \
    KERNEL(float, shardkit::bf16, float)          \
    KERNEL(float, shardkit::fp16, float)          \
    KERNEL(shardkit::bf16, shardkit::bf16, float) \
    KERNEL(shardkit::fp16, shardkit::fp16, float)

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/element.hpp>

// EACH_PRECISION(KERNEL): KERNEL(Master, Gather, Gradient) for combinations in which every two of the four element
// types stand in every two places, and each in all three. EACH_DEFAULT_PRECISION(KERNEL): the same for those of
// DefaultPrecision, and of it without masters.

#define EACH_DEFAULT_PRECISION(KERNEL)            \
    KERNEL(double, double, double)                \
    KERNEL(float, float, float)                   \
    KERNEL(float, shardkit::bf16, float)          \
    KERNEL(float, shardkit::fp16, float)          \
    KERNEL(shardkit::bf16, shardkit::bf16, float) \
    KERNEL(shardkit::fp16, shardkit::fp16, float)
#define EACH_PRECISION(KERNEL)                             \
    EACH_DEFAULT_PRECISION(KERNEL)                         \
    KERNEL(double, double, float)                          \
    KERNEL(double, float, shardkit::bf16)                  \
    KERNEL(double, shardkit::bf16, shardkit::fp16)         \
    KERNEL(double, shardkit::fp16, double)                 \
    KERNEL(float, double, double)                          \
    KERNEL(float, shardkit::bf16, shardkit::bf16)          \
    KERNEL(float, shardkit::fp16, shardkit::fp16)          \
    KERNEL(shardkit::bf16, double, shardkit::fp16)         \
    KERNEL(shardkit::bf16, float, double)                  \
    KERNEL(shardkit::bf16, shardkit::bf16, shardkit::bf16) \
    KERNEL(shardkit::bf16, shardkit::fp16, shardkit::bf16) \
    KERNEL(shardkit::fp16, double, shardkit::bf16)         \
    KERNEL(shardkit::fp16, float, shardkit::fp16)          \
    KERNEL(shardkit::fp16, shardkit::bf16, double)         \
    KERNEL(shardkit::fp16, shardkit::fp16, shardkit::fp16)

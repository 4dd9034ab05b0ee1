// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/element.hpp>

// The CUDA toolkit's own types of 16 bits, as elements: of cuda_bf16.h and cuda_fp16.h, which who uses them includes.
// NOLINTNEXTLINE(bugprone-reserved-identifier): the toolkit's names
struct __nv_bfloat16;
// NOLINTNEXTLINE(bugprone-reserved-identifier)
struct __half;

namespace shardkit {

template <>
struct element_traits<__nv_bfloat16> : detail::ElementTraits<ElementType::bf16, float> {};
template <>
struct element_traits<__half> : detail::ElementTraits<ElementType::fp16, float> {};

}  // namespace shardkit

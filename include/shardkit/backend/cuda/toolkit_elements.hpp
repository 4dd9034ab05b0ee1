// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/element.hpp>

// Element traits for the CUDA toolkit's 16-bit types. Users include cuda_bf16.h and cuda_fp16.h themselves.
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

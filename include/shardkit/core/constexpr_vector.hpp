// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

/// Stands for `constexpr` in functions that have a std::vector: in libstdc++'s debug mode (-D_GLIBCXX_DEBUG) that is
/// no literal type before C++23, and they run at run time alone.
#ifdef _GLIBCXX_DEBUG
#define SHARDKIT_CONSTEXPR_VECTOR inline
#else
#define SHARDKIT_CONSTEXPR_VECTOR constexpr
#endif

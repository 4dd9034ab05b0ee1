// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

/// `constexpr` for functions with a std::vector. In libstdc++'s debug mode (-D_GLIBCXX_DEBUG) that is no literal type
/// before C++23, and the functions run only at run time.
#ifdef _GLIBCXX_DEBUG
#define SHARDKIT_CONSTEXPR_VECTOR inline
#else
#define SHARDKIT_CONSTEXPR_VECTOR constexpr
#endif

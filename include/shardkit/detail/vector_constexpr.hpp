// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

/// What functions with vectors are: constexpr, but where libstdc++'s debugging vector stands for std::vector, which is
/// no literal type.
#if defined(_GLIBCXX_DEBUG)
#define SHARDKIT_VECTOR_CONSTEXPR inline
#else
#define SHARDKIT_VECTOR_CONSTEXPR constexpr
#endif

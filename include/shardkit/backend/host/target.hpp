// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the translation unit is compiled for decides which lanes there are (see lanes.hpp) and which of them functions
// choose. Files of one program may be compiled for unlike processors, and of the functions of one name the linker
// keeps one: lanes of 16 bytes would be handed to loops on 32. So lanes and what chooses among them are in inline
// namespaces that say all that decides. So does a file whose arithmetic is not IEEE's, in which a maximum is not
// the NaN that it should be, and so do the core of the compiled form, which does not contract, and a trainer's files
// of it, as no macro says whether they do.

#if defined(__AVX2__) && defined(__F16C__) && defined(__FMA__)  // as x86-64-v3 has
#define SHARDKIT_HOST_V3
#define SHARDKIT_HOST_AVX ::inline with_v3
#elif defined(__AVX__)
#define SHARDKIT_HOST_AVX ::inline with_avx
#else
#define SHARDKIT_HOST_AVX
#endif
#if defined(__AVX512F__)
#define SHARDKIT_HOST_WIDE ::inline with_avx512
#elif defined(__x86_64__) && !defined(SHARDKIT_HOST_V3) && !defined(__clang__) && !__FINITE_MATH_ONLY__
#define SHARDKIT_WIDE_AT_RUN_TIME
#define SHARDKIT_HOST_WIDE ::inline wide_at_run_time
#else
#define SHARDKIT_HOST_WIDE
#endif

#if defined(__FAST_MATH__) || __FINITE_MATH_ONLY__ || defined(__ASSOCIATIVE_MATH__) || \
    defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__)
#ifdef SHARDKIT_CORE
#error "shardkit's core is compiled with -ffast-math or a part of it, but its bits are those of all files"
#endif
#define SHARDKIT_HOST_MATH ::inline with_fast_math
#else
#define SHARDKIT_HOST_MATH
#endif
#if defined(SHARDKIT_COMPILED)
#define SHARDKIT_HOST_FORM ::inline compiled_form
#elif defined(SHARDKIT_CORE)
#define SHARDKIT_HOST_FORM ::inline of_core
#else
#define SHARDKIT_HOST_FORM
#endif

#define SHARDKIT_HOST_TARGET SHARDKIT_HOST_FORM SHARDKIT_HOST_MATH SHARDKIT_HOST_AVX SHARDKIT_HOST_WIDE

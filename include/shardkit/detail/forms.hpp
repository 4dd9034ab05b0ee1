// SPDX-License-Identifier: Apache-2.0
#pragma once

/// SHARDKIT_CHECKED=1, defined before the first include, makes a checked build: released gather buffers are filled
/// with NaN, and every view is compared with its window's generation. Results stay bitwise equal.
/// Types that differ between the two builds are in an inline namespace where the build is a checked one: mixing
/// checked and unchecked translation units is a link error or harmless, but never a silent ODR violation.
#ifndef SHARDKIT_CHECKED
#define SHARDKIT_CHECKED 0
#endif

#if SHARDKIT_CHECKED
#define SHARDKIT_CHECKED_BUILD ::inline checked_build
#else
#define SHARDKIT_CHECKED_BUILD
#endif
/// With SHARDKIT_COMPILED the classes of a trainer's file refer to a core that is compiled once (see compiled.hpp),
/// and have names of their own likewise.
#ifdef SHARDKIT_COMPILED
#define SHARDKIT_BUILD SHARDKIT_CHECKED_BUILD::inline compiled_form
#else
#define SHARDKIT_BUILD SHARDKIT_CHECKED_BUILD
#endif
/// A class that is one in both forms is in SHARDKIT_FACE, and what is defined out of it is SHARDKIT_CORE_INLINE:
/// files of the compiled form have its header, and the core has the definitions behind it, for which it is compiled
/// once. So these have the same names for both, and others in header-only files, which may be compiled for another
/// machine.
/// SHARDKIT_FORM is the same of what does not differ in a checked build, nor names what does.
#if defined(SHARDKIT_COMPILED) || defined(SHARDKIT_CORE)
#define SHARDKIT_FORM ::inline compiled_form
#else
#define SHARDKIT_FORM
#endif
#define SHARDKIT_FACE SHARDKIT_CHECKED_BUILD SHARDKIT_FORM
#ifdef SHARDKIT_CORE
#define SHARDKIT_CORE_INLINE [[gnu::used]] inline
#else
#define SHARDKIT_CORE_INLINE inline
#endif

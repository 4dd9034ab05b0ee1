// SPDX-License-Identifier: Apache-2.0
#pragma once

/// clang's typestate attributes: with -Wconsumed, the use of a window after its end is a compile-time warning. A
/// window that is passed by reference has an unknown state and may be used. Other compilers would warn about the
/// attributes, so the macros are empty there.
#ifdef __clang__
#define SHARDKIT_CONSUMABLE [[clang::consumable(unconsumed)]]
#define SHARDKIT_RETURNS_UNCONSUMED [[clang::return_typestate(unconsumed)]]
#define SHARDKIT_CALLABLE_WHEN_UNCONSUMED [[clang::callable_when("unconsumed", "unknown")]]
#else
#define SHARDKIT_CONSUMABLE
#define SHARDKIT_RETURNS_UNCONSUMED
#define SHARDKIT_CALLABLE_WHEN_UNCONSUMED
#endif

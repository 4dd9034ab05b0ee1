// SPDX-License-Identifier: Apache-2.0
#pragma once

/// SHARDKIT_CONSUMABLE and its like are clang's typestate attributes: with -Wconsumed, a window used after its end is
/// a compile-time diagnosis. A window that came by reference is in an unknown state and may be used. Other compilers
/// do not know them and would warn, so they see nothing.
#ifdef __clang__
#define SHARDKIT_CONSUMABLE [[clang::consumable(unconsumed)]]
#define SHARDKIT_RETURNS_UNCONSUMED [[clang::return_typestate(unconsumed)]]
#define SHARDKIT_CALLABLE_WHEN_UNCONSUMED [[clang::callable_when("unconsumed", "unknown")]]
#else
#define SHARDKIT_CONSUMABLE
#define SHARDKIT_RETURNS_UNCONSUMED
#define SHARDKIT_CALLABLE_WHEN_UNCONSUMED
#endif

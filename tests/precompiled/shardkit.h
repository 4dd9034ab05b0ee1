// SPDX-License-Identifier: Apache-2.0
// What most tests include, read once for each test program; see tests/meson.build.
#include <shardkit/shardkit.hpp>

#include <doctest/doctest.h>

// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace shardkit::test {

/// A work for `run`: reads two scalars, writes one.
struct Multiply {
    const double* a;
    const double* b;
    double* product;
    constexpr void operator()() const { *product = *a * *b; }
};

}  // namespace shardkit::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/optim/matrix_products.hpp>

namespace shardkit {
class Stream;
}

namespace code_base {

/// A code base's products of matrices on a device, for a trainer that reads none of CUDA's headers.
struct DeviceProducts {
    void multiply(const shardkit::Stream& stream, const shardkit::rules::MatrixProduct<float>& product) const;
    void multiply(const shardkit::Stream& stream, const shardkit::rules::MatrixProduct<double>& product) const;
    void gram(const shardkit::Stream& stream, const shardkit::rules::GramProduct<float>& product) const;
    void gram(const shardkit::Stream& stream, const shardkit::rules::GramProduct<double>& product) const;
};

}  // namespace code_base

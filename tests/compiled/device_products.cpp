// SPDX-License-Identifier: Apache-2.0
// The products of the host, as functions that the stand-in's streams call in place of kernels.
#include "device_products.hpp"

#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/muon/host_products.hpp>

#include "unit/backend/nccl/host_functions.hpp"

namespace code_base {

using host_functions::LaunchedStream;
using shardkit::HostProducts;
using shardkit::Stream;
using shardkit::rules::GramProduct;
using shardkit::rules::MatrixProduct;

void DeviceProducts::multiply(const Stream& stream, const MatrixProduct<float>& product) const {
    HostProducts::multiply(LaunchedStream(stream), product);
}
void DeviceProducts::multiply(const Stream& stream, const MatrixProduct<double>& product) const {
    HostProducts::multiply(LaunchedStream(stream), product);
}
void DeviceProducts::gram(const Stream& stream, const GramProduct<float>& product) const {
    HostProducts::gram(LaunchedStream(stream), product);
}
void DeviceProducts::gram(const Stream& stream, const GramProduct<double>& product) const {
    HostProducts::gram(LaunchedStream(stream), product);
}

}  // namespace code_base

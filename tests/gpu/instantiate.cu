// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/kernels.hpp>
#include <shardkit/backend/cub/launch.cuh>

#include "../unit/backend/cub/multiply.hpp"

// The kernels of one launch, except the optimizers', for each element type that they take.

using shardkit::bf16;
using shardkit::fp16;
using shardkit::gpu::detail::DeviceLaunch;
using namespace shardkit;  // no name of which shadows a vendor's
using namespace shardkit::gpu;

#define LAUNCH(...) template void DeviceLaunch::operator()(std::uint64_t, const __VA_ARGS__&, std::string_view) const;
#define ELEMENT(T)                                \
    LAUNCH(FillPass<T>)                           \
    LAUNCH(PackPass<T, engine::TensorCopy::pack>) \
    LAUNCH(PackPass<T, engine::TensorCopy::unpack>)
#define FROM_TO(From, To)         \
    LAUNCH(ConvertPass<From, To>) \
    LAUNCH(AccumulatePass<From, To>)
#define FLOATING(T)                    \
    LAUNCH(ConvertRowsPass<T, double>) \
    LAUNCH(ConvertRowsPass<T, float>)  \
    FROM_TO(T, double)                 \
    FROM_TO(T, float)                  \
    FROM_TO(T, bf16)                   \
    FROM_TO(T, fp16)

ELEMENT(double)
ELEMENT(float)
ELEMENT(bf16)
ELEMENT(fp16)
ELEMENT(std::int64_t)
ELEMENT(std::int32_t)
ELEMENT(std::uint64_t)
ELEMENT(std::uint32_t)
ELEMENT(std::uint8_t)
FLOATING(double)
FLOATING(float)
FLOATING(bf16)
FLOATING(fp16)
LAUNCH(RunOnce<shardkit::test::Multiply>)

// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <shardkit/backend/cub/launches.cuh>
#include <shardkit/backend/cuda/cublas_products.hpp>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/muon/host_products.hpp>
#include <shardkit/muon/newton_schulz.hpp>

#include "../unit/backend/cub/matrix_checks.hpp"
#include "../unit/muon/products_cases.hpp"
#include "gpu_machine.hpp"

// Products by cuBLAS, and what Muon makes of a matrix with them.

namespace sk = shardkit;
namespace gpu = shardkit::gpu;

namespace {

struct FreeDevice {
    void operator()(void* memory) const noexcept { cudaFree(memory); }
};
template <class T>
using OnDevice = std::unique_ptr<T[], FreeDevice>;

template <class T>
OnDevice<T> on_device(const std::vector<T>& values) {
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, values.size() * sizeof(T) + 1) == cudaSuccess);
    REQUIRE(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
    return OnDevice<T>(static_cast<T*>(memory));
}
template <class T>
std::vector<T> on_host(const T* memory, std::size_t n) {
    std::vector<T> values(n);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    REQUIRE(cudaMemcpy(values.data(), memory, n * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return values;
}

/// A GPU's stream, and a handle in its order.
struct Cublas {
    shardkit::test::GpuMachine machine;
    cublasHandle_t handle = nullptr;

    Cublas() {
        REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
        REQUIRE(cublasSetStream(handle, machine.stream().native()) == CUBLAS_STATUS_SUCCESS);
    }
    Cublas(const Cublas&) = delete;
    Cublas& operator=(const Cublas&) = delete;
    ~Cublas() { cublasDestroy(handle); }
    gpu::CublasProducts products(gpu::Factors factors = gpu::Factors::as_stored) const {
        return gpu::CublasProducts{handle, factors};
    }
};

template <class A>
std::vector<A> orthogonal_on_host(sk::rules::MatrixExtents extents, std::vector<A> matrix) {
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        std::vector<double> scratch(sk::rules::newton_schulz_scratch<A>(extents));  // aligned for double
        const double epsilon = 1e-7;
        sk::rules::newton_schulz(rank.compute_stream(), sk::HostProducts{}, extents, &epsilon, std::span<A>(matrix),
                                 std::span<A>(reinterpret_cast<A*>(scratch.data()), scratch.size()));
    });
    return matrix;
}

template <class A>
void check_orthogonal(const Cublas& cublas, gpu::TimelineRef stream, double allowed) {
    for (const sk::rules::MatrixExtents extents :
         {sk::rules::MatrixExtents{1, 1}, {1, 700}, {64, 3}, {96, 96}, {130, 515}}) {
        CAPTURE(extents.rows);
        CAPTURE(extents.columns);
        std::vector<A> matrix;
        for (std::size_t i = 0; i < extents.numel(); ++i) {
            matrix.push_back(static_cast<A>(std::sin(static_cast<double>((i + 3) * (i + 7) % 1009))));
        }
        const std::vector<A> expected = orthogonal_on_host<A>(extents, matrix);
        const auto epsilon = on_device(std::vector<double>{1e-7});
        const auto values = on_device(matrix);
        const std::size_t works = sk::rules::newton_schulz_scratch<A>(extents);
        const auto scratch = on_device(std::vector<A>(works, std::numeric_limits<A>::quiet_NaN()));
        const auto run = [&] {
            sk::rules::newton_schulz(stream, cublas.products(), extents, epsilon.get(),
                                     std::span<A>(values.get(), extents.numel()), std::span<A>(scratch.get(), works));
            return on_host(values.get(), extents.numel());
        };
        const std::vector<A> made = run();
        double apart = 0;
        for (std::size_t i = 0; i < made.size(); ++i) {
            apart = std::max(apart, std::abs(static_cast<double>(made[i]) - static_cast<double>(expected[i])));
        }
        CHECK(apart <= allowed);

        matrix.front() = std::numeric_limits<A>::quiet_NaN();
        REQUIRE(cudaMemcpy(values.get(), matrix.data(), matrix.size() * sizeof(A), cudaMemcpyHostToDevice) ==
                cudaSuccess);
        std::size_t numbers = 0;
        for (const A value : run()) { numbers += std::isnan(value) ? 0U : 1U; }
        CHECK(numbers == 0);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("Muon's kernels add the norm in the host's order and move what two loops move", A, float, double) {
    shardkit::test::GpuMachine gpu;
    shardkit::test::check_matrix_works<A>(gpu.machine());
}

TEST_CASE("cuBLAS's products are the sums, and write half of a symmetric result") {
    Cublas cublas;
    const auto check = [&]<class A>(A, gpu::Factors factors) {
        std::vector<OnDevice<A>> kept;
        products_cases::check_products<A>(
            cublas.products(factors), cublas.machine.stream(),
            [&](const std::vector<A>& values) { return kept.emplace_back(on_device(values)).get(); },
            [](const A* memory, std::size_t n) { return on_host(memory, n); });
    };
    for (const gpu::Factors factors : {gpu::Factors::as_stored, gpu::Factors::in_bf16}) {
        check(float{}, factors);
        check(double{}, factors);
    }
}

TEST_CASE("matrices are made orthogonal on the device as on the host, but for the order of sums") {
    Cublas cublas;
    check_orthogonal<float>(cublas, cublas.machine.stream(), 1e-4);
    check_orthogonal<double>(cublas, cublas.machine.stream(), 1e-12);
}

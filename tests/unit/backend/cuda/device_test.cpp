// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/device.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/thrown_message.hpp"

namespace device_test {

using shardkit::gpu::Error;
using shardkit::gpu::local_device;
using shardkit::gpu::detail::current_device;
using shardkit::gpu::detail::device_count;
using shardkit::gpu::detail::DeviceGuard;

TEST_CASE("DeviceGuard: selects for the scope and restores, nested and when an exception leaves it") {
    const CleanMachine machine;
    {
        const DeviceGuard outer(2);
        CHECK(current_device() == 2);
        {
            const DeviceGuard inner(5);
            CHECK(current_device() == 5);
        }
        CHECK(current_device() == 2);
        CHECK_THROWS_AS(
            [] {
                const DeviceGuard inner(1);
                throw std::runtime_error("planted");
            }(),
            std::runtime_error);
        CHECK(current_device() == 2);
    }
    CHECK(current_device() == 0);
}

TEST_CASE("DeviceGuard: what was selected before is not selected again where that would make a context") {
    standin::reset();
    std::thread([] {  // in which nothing is selected
        {
            const DeviceGuard guard(3);
            CHECK(cudaDeviceSynchronize() == cudaSuccess);
        }
        CHECK_FALSE(standin::context_maker(3).empty());
        CHECK(standin::context_maker(0) == "");
        CHECK(current_device() == 3);
        { const DeviceGuard guard(5); }
        CHECK(current_device() == 3);
    })
        .join();
}

TEST_CASE("DeviceGuard: the device that is selected already is not selected again") {
    const CleanMachine machine;
    {
        const DeviceGuard guard(0);
        CHECK(current_device() == 0);
    }
    CHECK(standin::calls("cudaSetDevice") == 0);
}

TEST_CASE("DeviceGuard: a device that does not exist is an error at the user's line, and nothing is selected") {
    const CleanMachine machine;
    standin::set_device_count(2);
    const std::string message = thrown_message<Error>([] { const DeviceGuard guard(2); });
    CHECK(message.find("cuda: cudaSetDevice at ") == 0);
    CHECK(message.find("device_test.cpp:") != std::string::npos);
    CHECK(current_device() == 0);
}

TEST_CASE("local_device: rank i of a machine has GPU i") {
    const CleanMachine machine;
    standin::set_device_count(4);
    CHECK(device_count() == 4);
    for (std::size_t rank = 0; rank < 4; ++rank) { CHECK(local_device(rank) == static_cast<int>(rank)); }
}

TEST_CASE("local_device: more ranks than GPUs is refused with both numbers and the user's line") {
    const CleanMachine machine;
    standin::set_device_count(4);
    const std::string message = thrown_message<std::invalid_argument>([] { local_device(4); });
    CHECK(message.find("local rank 4, but this machine has 4 GPUs; expected a local rank below 4 (") == 0);
    CHECK(message.find("device_test.cpp:") != std::string::npos);
}

TEST_CASE("local_device: a process that sees one GPU uses it, whatever its rank") {
    const CleanMachine machine;
    standin::set_device_count(1);
    CHECK(local_device(0) == 0);
    CHECK(local_device(9) == 0);
}

TEST_CASE("local_device: a machine without a GPU says so in the runtime's words") {
    standin::reset();
    standin::set_device_count(0);
    CHECK(thrown_message<Error>([] { local_device(0); }).find("cudaErrorNoDevice") != std::string::npos);
    standin::reset();
}

}  // namespace device_test

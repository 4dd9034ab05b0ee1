// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/device_guard.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/thrown_message.hpp"

using shardkit::gpu::current_device;
using shardkit::gpu::DeviceGuard;
using shardkit::gpu::Error;

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
    CHECK(message.find("device_guard_test.cpp:") != std::string::npos);
    CHECK(current_device() == 0);
}

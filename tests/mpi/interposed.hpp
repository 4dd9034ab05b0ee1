// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string_view>

/// The test program's own MPI functions stand between the engine and MPI, which they call through its profiling
/// interface. They count calls, and make one fail when they are told to; not while a World has threads of its own.
namespace mpi_test::interposed {

/// The number of calls of each function.
using Calls = std::map<std::string_view, int>;

/// Forgets what was counted and planted.
void restart();
const Calls& calls();

/// Call `number` of the function from now on (1 is the next) gives MPI_ERR_OTHER. One that completes requests or
/// receives does so first, one that starts something does not.
void fail(std::string_view function, int number = 1);
/// MPI_Initialized says no.
void deny_initialisation();

/// Whether this thread is inside MPI.
bool inside() noexcept;
/// Calls take so long from now on that another thread would come meanwhile.
void linger(bool on) noexcept;
/// Whether two threads ever were inside MPI at once.
bool two_at_once() noexcept;

}  // namespace mpi_test::interposed

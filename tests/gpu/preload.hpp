// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Loads the kernels that trainers of instantiate_kernels_for.cu launch, on the selected device.
/// @throws gpu::Error where one of them is not in the program for it
void preload_trainers();

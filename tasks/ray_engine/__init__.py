"""Ray under the pull loop: a cluster's nodes as slots, workers as actors. Ray is loaded on use."""
